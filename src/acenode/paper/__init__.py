"""The paper's experiments: every row of a table as data."""
