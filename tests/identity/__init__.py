"""Who may do what: tokens, sessions, links, and what comes in from outside."""
