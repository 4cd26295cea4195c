"""Runs of several seeds: plan, queue, statistics, report."""
