"""One file per framework: each turns that framework's log into record batches of the rollout-log schema."""
