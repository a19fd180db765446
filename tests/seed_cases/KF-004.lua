-- expect: error[mesh-product] world_size (8) not divisible by dp_replicate*tp*pp*cp*ep (3)
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 48, n_layers = 2, n_heads = 6, vocab_size = 256, ffn_hidden_dim = 96 },
  train = { batch_size = 1, seq_len = 63 },
  distributed = { tp = 3 },
}
