-- tensor = 2 is wrong for two reasons, but gives one error.
return require "dialects.credit" {
  world_size = 2,
  model = { type = "wxformer", dim = { 32, 64, 128, 256 }, dim_head = 32, use_spectral_norm = false },
  trainer = { type = "era5-gen2", parallelism = { data = "ddp", tensor = 2 } },
}
