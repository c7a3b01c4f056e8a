"""The one exception that means "this input cannot be used"."""


class InputError(ValueError):
    """Unusable input. The message names the file or argument, the rule, the value and the remedy.

    The command line turns it into one line on standard error and exit code 2.
    """
