@0xe6afd26682091c01;
struct Config {
  services @0 :List(Service);
  sockets @1 :List(Socket);
  v8Flags @2 :List(Text);
  extensions @3 :List(Extension);
  autogates @4 :List(Text);
  structuredLogging @5 :Bool = false;
  logging @6 : LoggingOptions;
  cluster @7 :ClusterConfig;
}
struct ClusterConfig {
  bucket @0 :Text;
  bucketOptions @1 :List(Text);
  address @2 :Text;
  advertise @4 :Text;
  key @3 :Text;
  unsafePublicAddress @5 :Bool = false;
  stopTimeoutMs @6 :UInt32 = 8000;
  unsafeTimeDivisor @7 :UInt32 = 1;
}
struct LoggingOptions {
  structuredLogging @0 :Bool = false;
  stdoutPrefix @1 :Text;
  stderrPrefix @2 :Text;
}
struct Socket {
  name @0 :Text;
  address @1 :Text;
  union {
    http @2 :HttpOptions;
    https :group {
      options @3 :HttpOptions;
      tlsOptions @4 :TlsOptions;
    }
    tcp :group {
      tlsOptions @6 :TlsOptions;
      tlsMode @9 :TcpTlsMode = implicit;
    }
    udp :group {
      idleTimeoutMs @7 :UInt32 = 30000;
      maxPendingBytes @8 :UInt32 = 262144;
    }
  }
  service @5 :ServiceDesignator;
  enum TcpTlsMode {
    implicit @0;
    startTls @1;
  }
}
struct Service {
  name @0 :Text;
  union {
    unspecified @1 :Void;
    worker @2 :Worker;
    network @3 :Network;
    external @4 :ExternalServer;
    disk @5 :DiskDirectory;
    bucket @6 :ClusterBucket;
    assets @7 :AssetsService;
  }
}
struct ClusterBucket {
  path @0 :Text;
}
struct AssetsService {
  path @0 :Text;
  config @1 :Text;
  userWorker @2 :ServiceDesignator;
  compatibilityDate @3 :Text;
  compatibilityFlags @4 :List(Text);
}
struct ServiceDesignator {
  name @0 :Text;
  entrypoint @1 :Text;
  props :union {
    empty @2 :Void;
    json @3 :Text;
  }
}
struct WorkflowsEngine {
  actorClass @0 :ServiceDesignator;
  workflows @1 :List(Workflow);
  struct Workflow {
    className @0 :Text;
    name @1 :Text;
    bindingService @2 :ServiceDesignator;
  }
}
struct Worker {
  union {
    modules @0 :List(Module);
    serviceWorkerScript @1 :Text;
    inherit @2 :Text;
  }
  struct Module {
    name @0 :Text;
    union {
      esModule @1 :Text;
      commonJsModule @2 :Text;
      text @3 :Text;
      data @4 :Data;
      wasm @5 :Data;
      json @6 :Text;
      obsolete @7 :Text;
      pythonModule @8 :Text;
      obsoletePythonRequirement @9 :Text;
      bundled @11 :Text;
    }
    namedExports @10 :List(Text);
  }
  compatibilityDate @3 :Text;
  compatibilityFlags @4 :List(Text);
  bindings @5 :List(Binding);
  struct Binding {
    name @0 :Text;
    union {
      unspecified @1 :Void;
      parameter :group {
        type @2 :Type;
        optional @3 :Bool;
      }
      text @4 :Text;
      data @5 :Data;
      json @6 :Text;
      wasmModule @7 :Data;
      cryptoKey @8 :CryptoKey;
      service @9 :ServiceDesignator;
      durableObjectClass @26 :ServiceDesignator;
      durableObjectNamespace @10 :DurableObjectNamespaceDesignator;
      kvNamespace @11 :ServiceDesignator;
      r2Bucket @12 :ServiceDesignator;
      obsolete0 @13 :ServiceDesignator;
      wrapped @14 :WrappedBinding;
      queue @15 :ServiceDesignator;
      fromEnvironment @16 :Text;
      analyticsEngine @17 :ServiceDesignator;
      hyperdrive :group {
        designator @18 :ServiceDesignator;
        database @19 :Text;
        user @20 :Text;
        password @21 :Text;
        scheme @22 :Text;
      }
      unsafeEval @23 :Void;
      memoryCache :group {
        id @24 :Text;
        limits @25 :MemoryCacheLimits;
      }
      workerLoader :group {
        id @27 :Text;
      }
      workerdDebugPort @28 :Void;
    }
    struct Type {
      union {
        unspecified @0 :Void;
        text @1 :Void;
        data @2 :Void;
        json @3 :Void;
        wasm @4 :Void;
        cryptoKey @5 :List(CryptoKey.Usage);
        service @6 :Void;
        durableObjectNamespace @7 :Void;
        kvNamespace @8 :Void;
        r2Bucket @9 :Void;
        obsolete0 @10 :Void;
        queue @11 :Void;
        analyticsEngine @12 : Void;
        hyperdrive @13: Void;
        durableObjectClass @14: Void;
        workerdDebugPort @15: Void;
      }
    }
    struct DurableObjectNamespaceDesignator {
      className @0 :Text;
      serviceName @1 :Text;
      obsolete2 @2 :AnyPointer;
    }
    struct CryptoKey {
      union {
        raw @0 :Data;
        hex @1 :Text;
        base64 @2 :Text;
        pkcs8 @3 :Text;
        spki @4 :Text;
        jwk @5 :Text;
      }
      algorithm :union {
        name @6 :Text;
        json @7 :Text;
      }
      extractable @8 :Bool = false;
      usages @9 :List(Usage);
      enum Usage {
        encrypt @0;
        decrypt @1;
        sign @2;
        verify @3;
        deriveKey @4;
        deriveBits @5;
        wrapKey @6;
        unwrapKey @7;
      }
    }
    struct MemoryCacheLimits {
      maxKeys @0 :UInt32;
      maxValueSize @1 :UInt32;
      maxTotalValueSize @2 :UInt64;
    }
    struct WrappedBinding {
      moduleName @0 :Text;
      entrypoint @1 :Text = "default";
      innerBindings @2 :List(Binding);
    }
  }
  globalOutbound @6 :ServiceDesignator = (name = "internet");
  cacheApiOutbound @11 :ServiceDesignator;
  durableObjectNamespaces @7 :List(DurableObjectNamespace);
  struct DurableObjectNamespace {
    className @0 :Text;
    union {
      uniqueKey @1 :Text;
      ephemeralLocal @2 :Void;
    }
    preventEviction @3 :Bool;
    enableSql @4 :Bool;
    container @5 :ContainerOptions;
    struct ContainerOptions {
      imageName @0 :Text;
      privileges @1 :ContainerPrivileges;
      images @2 :List(NamedImage);
      struct NamedImage {
        name @0 :Text;
        image @1 :Text;
      }
      struct ContainerPrivileges {
        capabilities @0 :List(Text);
        devices @1 :List(Device);
        securityOpt @2 :List(Text);
        struct Device {
          pathOnHost @0 :Text;
          pathInContainer @1 :Text;
          cgroupPermissions @2 :Text;
        }
      }
    }
  }
  durableObjectUniqueKeyModifier @8 :Text;
  durableObjectStorage :union {
    none @9 :Void;
    inMemory @10 :Void;
    localDisk @12 :Text;
  }
  moduleFallback @13 :Text;
  tails @14 :List(ServiceDesignator);
  streamingTails @15 :List(ServiceDesignator);
  containerEngine :union {
    none @16 :Void;
    localDocker @17 :DockerConfiguration;
  }
  struct DockerConfiguration {
    socketPath @0 :Text;
    containerEgressInterceptorImage @1 :Text;
    sessionId @2 :Text;
  }
  accessBlobHeader @18 :Text;
  accessBindingService @19 :ServiceDesignator;
  workflowsEngine @20 :WorkflowsEngine;
}
struct ExternalServer {
  address @0 :Text;
  union {
    http @1 :HttpOptions;
    https :group {
      options @2 :HttpOptions;
      tlsOptions @3 :TlsOptions;
      certificateHost @4 :Text;
    }
    tcp :group {
      tlsOptions @5 :TlsOptions;
      certificateHost @6 :Text;
    }
  }
}
struct Network {
  allow @0 :List(Text) = ["public"];
  deny @1 :List(Text);
  tlsOptions @2 :TlsOptions;
}
struct DiskDirectory {
  path @0 :Text;
  writable @1 :Bool = false;
  allowDotfiles @2 :Bool = false;
}
struct HttpOptions {
  style @0 :Style = host;
  enum Style {
    host @0;
    proxy @1;
  }
  forwardedProtoHeader @1 :Text;
  cfBlobHeader @2 :Text;
  injectRequestHeaders @3 :List(Header);
  injectResponseHeaders @4 :List(Header);
  struct Header {
    name @0 :Text;
    value @1 :Text;
  }
  capnpConnectHost @5 :Text;
}
struct TlsOptions {
  keypair @0 :Keypair;
  struct Keypair {
    privateKey @0 :Text;
    certificateChain @1 :Text;
  }
  requireClientCerts @1 :Bool = false;
  trustBrowserCas @2 :Bool = false;
  trustedCertificates @3 :List(Text);
  minVersion @4 :Version = goodDefault;
  enum Version {
    goodDefault @0;
    ssl3 @1;
    tls1Dot0 @2;
    tls1Dot1 @3;
    tls1Dot2 @4;
    tls1Dot3 @5;
  }
  cipherList @5 :Text;
}
struct Extension {
  modules @0 :List(Module);
  struct Module {
    name @0 :Text;
    internal @1 :Bool = false;
    esModule @2 :Text;
  }
}
struct FallbackServiceRequest {
  type @0 :Text;
  specifier @1 :Text;
  rawSpecifier @2 :Text;
  referrer @3 :Text;
  struct Attribute {
    name @0: Text;
    value @1: Text;
  }
  attributes @4 :List(Attribute);
}
