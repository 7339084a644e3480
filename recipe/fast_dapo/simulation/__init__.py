"""The curriculum with a simulated engine, pure: schedules, sizes and seconds before a GPU is rented."""
