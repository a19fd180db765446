return plan {
  model = require "models.llama" { size = "tiny" },
  batch = { global = 16, micro = 2, seq = 64 },
  mesh = { dp_shard = 2 },
  parallel = {
    float8 { only = {} },
    ac { modules = {} },
    fsdp2 { units = {} },
  },
}
