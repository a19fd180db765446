-- expect: ok local layers.0.mlp.up_proj.weight 4096,11008
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 4096, n_layers = 1, ffn_dim_multiplier = 1.0 },
  train = { batch_size = 1, seq_len = 64 },
}
