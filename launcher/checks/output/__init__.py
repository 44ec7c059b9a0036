"""How findings are shown to a person."""
