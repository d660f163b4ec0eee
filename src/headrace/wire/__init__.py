"""What client, host and coordinator share: the contract, calls, the secret, the client."""
