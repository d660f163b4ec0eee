"""Contract suites and models of blobs and stores."""
