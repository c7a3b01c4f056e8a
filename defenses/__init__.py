"""What is done to ratings, uploads and aggregates on their way (floor 2).

No defense is built in yet: uploads are recorded as the protocol sends them. Other packages can register
theirs under the entry point group ``factorleak.defenses``.
"""
