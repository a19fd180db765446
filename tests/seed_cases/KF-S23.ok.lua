-- expect: ok local layers.0.mlp.up_proj.weight 64,256
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 0, activation = "gelu" },
  train = { batch_size = 1, seq_len = 64 },
}
