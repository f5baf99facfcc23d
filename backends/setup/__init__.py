"""The tutorial's steps: is it done? what will it run? run it."""
