"""`limbeck compress`: students of one teacher along the whole range of cost, and the one to take."""
