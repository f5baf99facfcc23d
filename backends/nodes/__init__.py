"""Nodes before a launch: asked one by one what they have, judged against each other, tried together."""
