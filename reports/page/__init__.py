"""One self-contained page of results: what it says (content, overview), its charts, and its files."""
