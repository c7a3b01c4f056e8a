"""What the commands print of privacy accounts: what each defense states of itself, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from audit.cli.output import Output

if TYPE_CHECKING:
    from audit.epsilon.accounts import Stated


def show_accounts(output: Output, stated: Sequence[Stated]) -> None:
    """Print the accounts of all defenses, what they claim and do not hide."""
    from reports.tables import account_table

    beside: dict[str, None] = {}  # what stands below all tables, once
    for defense, accounts in stated:
        if not accounts:
            output.show(f"{defense} states no privacy account")
        for account in accounts:
            if account.lines:
                output.show(account_table([asdict(line) for line in account.lines], account.title))
            else:
                output.show(f"{account.title}: {account.unproved}")
            beside |= dict.fromkeys(account.claims)
    for _, accounts in stated:
        for account in accounts:
            beside |= dict.fromkeys(f"not hidden: {sentence}" for sentence in account.not_hidden)
    for sentence in beside:
        output.show(sentence)


def accounts_as_json(stated: Sequence[Stated]) -> list[dict[str, Any]]:
    """Turn the accounts of all defenses into JSON values."""
    return [
        {"defense": defense, "accounts": [asdict(account) for account in accounts]}
        for defense, accounts in stated
    ]
