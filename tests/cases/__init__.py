"""Failures that people reported of durable agents, each retold as a story to go through, and judged by the World's log."""
