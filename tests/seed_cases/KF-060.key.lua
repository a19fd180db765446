-- expect: error[unknown-key] Unknown config keys in ModelConfig: 'dimm' | did you mean 'dim'?
return require "dialects.kempnerforge" {
  world = 1,
  model = { dimm = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
}
