-- expect: error[unknown-word] mixed_precision = 'int4' | bf16, fp16, fp32, fp8
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, mixed_precision = "int4" },
}
