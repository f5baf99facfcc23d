"""A RunPlan becomes a job that outlives the terminal."""
