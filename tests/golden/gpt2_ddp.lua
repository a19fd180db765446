-- DDP over 2 with a tied head, biases and learned positions. The vocabulary of 50257 is whole.
return plan {
  model = require "models.gpt2" { size = "124m", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 4, micro = 1, seq = 32 },
  mesh = { dp_replicate = 2 },
  parallel = { ddp {} },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = adamw { lr = 6e-4 },
}
