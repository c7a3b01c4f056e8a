"""Paper 000's attack: non-linear systems, solved client by client."""
