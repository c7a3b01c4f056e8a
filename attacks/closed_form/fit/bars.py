"""All bars that an answer has to pass, each with what it stands for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bars:
    """Probabilities of answers about nothing, distances from the levels, and clients who have to agree."""

    # how often chance is taken for ratings
    accident: float = 1e-3  # client by client
    accident_of_many: float = 1e-4  # reading by reading, of many that are tried
    accident_by_row: float = 1e-2  # that one of all combinations is as near, where rows count one by one
    evidence: float = 20.0  # nats by which the best numbers must beat any others of a client
    nats: float = 8.0  # the same of few rounded rows against the next best multiple: one case of 3,000
    sure: float = 0.99  # probability of a client's sign
    upright: float = 0.95  # probability of the way round of all clients
    certain: float = 0.999  # mean probability of answers that nothing but a level leaves open

    # how near exact and rounded rows are: steps of the levels, or what is said
    half: float = 0.5  # of the digits of rows, which ratings keep of one step: roots of a quadratic
    third: float = 1 / 3  # the same of several steps, whose numbers come from each other
    digits: float = 1e-5  # left of right answers by rounding alone
    exact: float = 1e-3  # right ratings of rows without noise are nearer in the mean
    rounded: float = 1e-4  # misfit of rounded rows
    off_grid: float = 1e-2  # in the mean, beyond which exact rows are not of ratings
    off: float = 0.5  # misfit of exact rows that are off the levels
    far: float = 4.0  # from where on numbers are about no ratings, however far off chance would be
    between: float = 0.3  # so far from any level a row is not answered
    barely: float = 0.25  # rows that tell ratings no better are not exact
    lost: float = 30.0  # times the root of the rows' precision
    slack: float = 10.0  # times as far, in shares of the range, as rows from their directions
    telling: float = 0.2  # of how much predictions differ: what is farther owes it to errors alone

    # how much nearer than others
    clearly: float = 30.0  # times, that all other ratings must be farther
    related: float = 12.0  # the same of ratings that are the others, shifted or times a number
    closer: float = 10.0  # times better than with the declared scale a free one must fit
    usual: float = 3.0  # times the median distance, within which rows are on the levels
    within: float = 4.0  # the same, within which rows may be by accident
    farther: float = 10.0  # the same, from where on a row is of another step
    longest: float = 5.0  # the same of the longest rows, which may be clipped alone
    long: float = 0.9  # of the longest row of a client
    few: float = 0.15  # share of a client's ratings that one minibatch may be
    same_multiple: float = 1e-5  # relative, within which a scale says that ratings are a multiple
    alone: float = 0.01  # misfit, from where on a bias that nobody else has may be what makes ratings fit

    # how many
    levels: int = (
        3  # among a client's ratings that tell: fewer lie on the levels under many a shift and factor
    )
    fewest_ratings: int = 6  # of which not all are every second level by chance
    fewest: int = 3  # clients who are judged: exact rows of the declared rule are never off
    fewest_noisy: int = 8  # the same where noise is declared
    many: int = 11  # clients at the lowest level: a quarter with one below would show with probability 0.95
    alike: int = 20  # ratings of one level, of ``fewest`` clients, that are no accident
    most: float = 0.5  # share of the clients who can be judged that has to fit
    most_exact: float = 0.8  # the same of exact rows, which are never off unless something else is learned
    seldom: float = 0.25  # share of the clients with as many ratings that must be answered
    expected: float = 0.7  # clients who would lack the lowest level: nobody then does in one case of two


BARS = Bars()
