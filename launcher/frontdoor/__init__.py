"""New requests outlive the frontend: its listening socket is kept open, and served by the launcher after its death.

Dynamo's HTTP server can neither be handed a socket nor share its port, and a fresh one needs 3 to 11 s until it routes.
So the launcher keeps a duplicate of the living frontend's listening socket (pidfd_getfd), unused: every byte goes
directly to the frontend. When that dies, connections wait in the kernel's queue instead of being refused, and the
launcher passes them to whichever frontend serves first: the restarted one, or a warm spare (`frontend.spare`).
"""
