"""Long checks on demand; not part of the test run."""
