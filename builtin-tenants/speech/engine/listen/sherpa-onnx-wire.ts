/** What passes between the engine and the process that runs sherpa-onnx for it. */

export interface SherpaOnnxJob {
  /** Whether the model streams. */
  streams: boolean;
  /** An OfflineRecognizerConfig of sherpa-onnx-node (types.js), or an OnlineRecognizerConfig, as far as it is used here. */
  config: { modelConfig: { tokens: string; numThreads: number } & Record<string, unknown> };
  /** 16-bit mono WAV; undefined: the model is loaded, and that is all. */
  file?: string;
}

/** Exit code where the package is not there for this system. */
export const UNLOADABLE = 3;
