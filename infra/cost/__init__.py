"""What Forbear costs in a month: a model over measured figures and list prices, and what hosted services ask."""
