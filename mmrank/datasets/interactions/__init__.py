"""Positive pairs of left and right entities: users and items, texts, labels."""
