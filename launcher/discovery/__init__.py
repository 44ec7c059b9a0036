"""Dynamo's registrations: who is in routing, kept true by the launcher."""
