"""A run on one page: what its records hold, as charts that need no program but a browser, or none at all."""
