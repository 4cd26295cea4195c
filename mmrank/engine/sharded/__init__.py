"""Training whose model or state is spread over processes; no other training comes here."""
