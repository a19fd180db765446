-- Heads of each level are checked, and a grid that three ranks cannot share.
return require "dialects.credit" {
  world_size = 9,
  seq_length = 64,
  model = require "models.wxformer" "tiny",
  trainer = {
    parallelism = { data = "fsdp2", tensor = 3, domain = 3 },
  },
}
