"""A sweep: axes become a plan, the plan runs case by case, and every row is on disk before the next."""
