-- expect: ok mesh pp=2 | stages 1,1 | holder token_embedding.weight 0 | holder layers.1.mlp.down_proj.weight 1 | equal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { pp = 2 },
}
