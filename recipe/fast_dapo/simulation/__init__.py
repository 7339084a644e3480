"""The curriculum with a simulated engine, pure: compare schedules, sizes and times before renting a GPU."""
