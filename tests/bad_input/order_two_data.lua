-- The list that a hint advises has one data pass: two are refused.
return plan {
  model = require "models.llama" { size = "tiny" },
  batch = { global = 16, micro = 2, seq = 64 },
  mesh = { dp_shard = 2 },
  parallel = { ddp {}, fsdp2 {}, tp {}, tp {} },
}
