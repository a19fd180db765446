return plan { model = require 'models.llama' { size = 'tiny', layers = 8 },
  batch = { global = 72, seq = 16 }, mesh = { pp = 4, dp_shard = 8 },
  parallel = { pp { schedule = 'zb_v', layers_per_stage = 1 }, fsdp2 {} } }
