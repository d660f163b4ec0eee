"""What records add up to: a picture of the application, its bottleneck, plots."""
