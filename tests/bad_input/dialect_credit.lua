-- Mistakes that miles-credit refuses, together with mistakes that it accepts.
return require "dialects.credit" {
  world_size = 8,
  seq_length = 64,
  model = require "models.wxformer" "tiny",
  trainer = {
    parallelism = {
      data = "none",
      tensor = 1,
      pipelin = 2,
    },
    amp = true,
    fsdp2_mp_policy = { param_dtype = "bfloat61" },
    seed_by_dp_rank = "before_build",
    grad_max_norm = "dynamic",
  },
}
