"""What the commands print of privacy accounts: what each defense states of itself, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from audit.cli.options import show


def print_accounts(
    name: str,
    victim: Any,
    defenses: Sequence[Any],
    ratings: Any,
    *,
    weightings: Sequence[str],
    n_rounds: int,
    seed: int,
) -> None:
    """The accounts of all defenses, then what they do not hide; a defense without an account is named."""
    from reports.tables import account_table
    from victims.protocols.account import Account, Setting

    held = ratings
    for defense in defenses:
        held = defense.on_device(held, seed)
    not_hidden: dict[str, None] = {}
    for defense in defenses:
        stated: dict[str, Account] = {}
        for weighting in weightings:
            account = defense.account(held, Setting(name, weighting, n_rounds, victim.factor_bound, seed))
            if account is not None:
                stated[account.title] = account
        if not stated:
            show(f"{defense.name} states no privacy account")
        for account in stated.values():
            if account.lines:
                show(account_table([asdict(line) for line in account.lines], account.title))
            else:
                show(f"{account.title}: {account.unproved}")
            not_hidden |= dict.fromkeys(account.not_hidden)
    for sentence in not_hidden:
        show(f"not hidden: {sentence}")
