-- An image in front of the text. The encoder of the image is frozen and lies whole on both ranks; the backward pass
-- ends in the projector. The loss reads the text.
return plan {
  model = require "models.llava" { size = "tiny", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 1, seq = 8 },
  mesh = { dp_shard = 2 },
  parallel = { freeze { modules = { "encoder" }, shard = false }, fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
