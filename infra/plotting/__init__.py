"""Drawing of series over time: into SVG and PNG files and onto a terminal. Knows nothing of webhooks."""
