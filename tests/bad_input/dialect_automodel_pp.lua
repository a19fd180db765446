-- 2 layers in stages of 1 over 4 ranks, with a tied head.
return require "dialects.automodel" {
  world_size = 8,
  seq_length = 64,
  model = require "models.llama" { size = "tiny", tied = true },
  distributed = {
    pp_size = 4,
    pipeline = {
      pp_schedule = "1f2b",
      layers_per_stage = 1,
    },
  },
}
