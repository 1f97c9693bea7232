package io.onecopy;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Collection;

import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

import org.apache.kafka.common.config.ConfigException;

/** TLS that trusts the certificates of one PEM file and no others. */
final class TrustedCertificates {
    private TrustedCertificates() {
    }

    static SSLContext context(Path pem) {
        try {
            TrustManagerFactory trust =
                    TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(keyStore(pem));
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            return context;
        } catch (IOException | GeneralSecurityException e) {
            throw new ConfigException("rsm.config." + PluginConfig.TLS_TRUST + ": " + pem
                    + " is not a PEM file of X.509 certificates (" + e.getMessage() + ")");
        }
    }

    private static KeyStore keyStore(Path pem) throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        int count = 0;
        for (Certificate certificate : read(pem)) {
            store.setCertificateEntry("ca-" + count++, certificate);
        }
        if (count == 0) {
            throw new IOException("it holds none");
        }
        return store;
    }

    private static Collection<? extends Certificate> read(Path pem)
            throws IOException, GeneralSecurityException {
        try (InputStream in = Files.newInputStream(pem)) {
            return CertificateFactory.getInstance("X.509").generateCertificates(in);
        }
    }
}
