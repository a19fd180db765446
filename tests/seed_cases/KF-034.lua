-- expect: ok local layers.0.mlp.up_proj.weight 4096,14336 | parameters 8030261248
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 4096, n_layers = 32, n_heads = 32, n_kv_heads = 8, vocab_size = 128256, ffn_dim_multiplier = 1.3 },
  train = { batch_size = 1, seq_len = 64 },
}
