"""Sphinx configuration of the handbook: ``sphinx-build -W -b html docs docs/_build/html``."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "factorleak"
author = "the factorleak authors"
version = release = installed("factorleak")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinxcontrib.bibtex",
    "command_pages",
]
exclude_patterns = ["_build", "research/source"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
bibtex_bibfiles = ["references.bib"]
numpydoc_show_class_members = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
html_theme = "furo"
html_title = "factorleak handbook"
nitpicky = False
linkcheck_anchors = False
