"""Registered mmrank models: losses and heads."""
