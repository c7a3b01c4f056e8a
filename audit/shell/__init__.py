"""The process: signals, exit codes, messages and tracebacks."""
